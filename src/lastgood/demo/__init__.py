"""`demo`: real parts, broken in one scene after the other, and every record counted; `stage` is for other scenes."""

from lastgood.demo.application import Application, DemoFailedError
from lastgood.demo.events import Killed, Scene, SceneStep, Seconds
from lastgood.demo.play import Demo, demo
from lastgood.demo.script import SCENES, Script, parse_scenes
from lastgood.demo.stage import DemoStage, open_stage, set_up
from lastgood.demo.tally import DemoTally, count

__all__ = [
    "SCENES",
    "Application",
    "Demo",
    "DemoFailedError",
    "DemoStage",
    "DemoTally",
    "Killed",
    "Scene",
    "SceneStep",
    "Script",
    "Seconds",
    "count",
    "demo",
    "open_stage",
    "parse_scenes",
    "set_up",
]
