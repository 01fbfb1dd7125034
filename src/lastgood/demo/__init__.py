"""`demo`: real parts, broken in one scene after the other, and every record counted; `stage` is for other scenes."""

from lastgood.demo.application import Application, DemoFailedError
from lastgood.demo.events import Killed, Scene, Seconds, Step
from lastgood.demo.play import Demo, demo
from lastgood.demo.script import SCENES, Script, parse_scenes
from lastgood.demo.stage import Stage, open_stage, set_up
from lastgood.demo.tally import Tally, count

__all__ = [
    "SCENES",
    "Application",
    "Demo",
    "DemoFailedError",
    "Killed",
    "Scene",
    "Script",
    "Seconds",
    "Stage",
    "Step",
    "Tally",
    "count",
    "demo",
    "open_stage",
    "parse_scenes",
    "set_up",
]
