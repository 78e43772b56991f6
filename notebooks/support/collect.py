"""Write the curves of finished sweeps into `curves.json`, the data of notebook 7.

    for name in lake_4x4_known lake_4x4_unknown lake_8x8_known taxi_known; do
        pdgd sweep notebooks/support/$name.toml --out runs/$name
    done
    python notebooks/support/collect.py runs

Each curve has the episodes of its checkpoints and, over seeds, the quantiles of the regret and of
the violation, rounded to three digits.
"""

import json
import pathlib
import sys

from pdgd_jax import open_results

QUANTILES = (0.1, 0.5, 0.9)


def curve(folder: pathlib.Path) -> dict:
    """The curves of one sweep with a single cell."""
    data = open_results(folder)
    cell = data.isel({name: 0 for name in data.regret.dims if name not in ("seed", "checkpoint")})

    def over_seeds(name: str) -> list[list[float]]:
        bands = cell[name].transpose("seed", "checkpoint").quantile(QUANTILES, "seed").values
        return [[float(f"{x:.3g}") for x in band] for band in bands]

    return {
        "seeds": cell.sizes["seed"],
        "opt": round(float(cell.opt.values.flat[0]), 6),
        "episode": cell.episode.values.reshape(-1)[: cell.sizes["checkpoint"]].tolist(),
        "unconverged": int(cell.unconverged.max()),
        "regret": over_seeds("regret"),
        "violation": over_seeds("violation"),
    }


if __name__ == "__main__":
    runs = pathlib.Path(sys.argv[1])
    finished = sorted(path.parent for path in runs.glob("*/results.zarr"))
    curves = {folder.name: curve(folder) for folder in finished}
    target = pathlib.Path(__file__).with_name("curves.json")
    target.write_text(json.dumps(curves, separators=(",", ":")) + "\n")
    print(f"{target}: {', '.join(curves)}, {target.stat().st_size:,} bytes")
