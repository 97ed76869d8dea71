"""All measurements of the README, one after another, so that none disturbs another."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Runs each script with this interpreter; what it prints is the report."""
    for script in ("randperm.py", "raw.py", "s3.py"):
        print(f"\n## {script}\n", flush=True)
        subprocess.run([sys.executable, str(HERE / script), *sys.argv[1:]], check=True)


if __name__ == "__main__":
    main()
