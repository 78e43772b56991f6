"""How far a sweep is, from its files alone."""

import time
from pathlib import Path
from typing import Any


def sweep_status(folder: Path) -> dict[str, Any]:
    """How far the sweep in a folder is, from its files alone: also while it runs.

    Raises:
      StoreError: if the folder holds no sweep.
    """
    from pdgd_jax.sweeps._folder import Store

    store = Store.open(folder)
    progress, plan, now = store.progress(), store.plan, time.time()
    groups, unconverged = [], 0
    for group in plan["groups"]:
        done = 0
        for name, block in group["blocks"].items():
            if name in progress.blocks:
                last = progress.blocks[name].facts[-1]
                done += last["episode"] * block["lanes"]
                unconverged += last["unconverged"]
        keep = ("name", "learners", "instances", "lanes", "episodes")
        groups.append({key: group[key] for key in keep} | {"episodes_done": done})
    done = sum(group["episodes_done"] for group in groups)
    # As the processes that run have measured it themselves: files do not tell what time went into.
    measured = [said.facts for said in progress.doing if said.facts["seconds"] > 0]
    speed = sum(facts["played"] / facts["seconds"] for facts in measured) or None
    saved = [block.times[-1] for block in progress.blocks.values()]
    finished = progress.has_results and done == plan["episodes"]
    running = "running" if progress.running else "stopped"
    return {
        "name": store.identity["configuration"]["name"],
        "state": "finished" if finished else running,
        "created": store.created,
        "lanes": plan["lanes"],
        "episodes": plan["episodes"],
        "episodes_done": done,
        "episodes_per_second": speed,
        "seconds_left": (plan["episodes"] - done) / speed if speed else None,
        "seconds_since_saved": max(0.0, now - max(saved)) if saved else None,
        "processes": [
            {
                "state": said.facts["state"],
                "group": said.facts["group"],
                "seconds": max(0.0, now - said.time),
            }
            for said in progress.doing
        ],
        "unconverged": unconverged,
        "groups": groups,
    }
