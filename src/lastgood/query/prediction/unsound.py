"""Files of the state that are not what was written. Values only. Pure."""

from __future__ import annotations

from lastgood.checkpoint.damage import Damage
from lastgood.frozen import dataclass
from lastgood.query.prediction.spark_version import SPARK_4_1, SparkVersion


@dataclass(frozen=True, slots=True)
class Unsound:
    """A file of the state that does not fit its checksum."""

    damage: Damage
    is_snapshot: bool
    """Whether it is a RocksDB snapshot, or a part of one: those are read through Hadoop, which checks them."""
    by_spark: bool
    """Whether it does not fit the checksum that Spark itself wrote, which Spark 4.1 and later check."""
    is_corrupt: bool = False
    """Whether it cannot be unpacked, or what comes out is not what was packed: lz4 keeps a checksum of each block."""

    def stops(self, spark: SparkVersion) -> bool:
        """Whether this Spark surely fails at it; any may, where what was changed is no longer what can be read."""
        return self.is_snapshot or self.is_corrupt or (self.by_spark and spark >= SPARK_4_1)
