"""Answers many audits in one Spark session: `audit_cases.py FOLDER_OF_THE_JOB SPECS ANSWERS`."""

import json
import sys
from pathlib import Path

job, specs, answers = sys.argv[1:]
sys.path.insert(0, job)

from audit_job import answer  # noqa: E402 - from the folder that is named only now

found = [answer(spec, lambda _: None) for spec in json.loads(Path(specs).read_text())]
Path(answers).write_text(json.dumps(found))
