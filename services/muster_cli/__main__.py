"""``python -m muster_cli``."""

from muster_cli.main import main

if __name__ == "__main__":
    main()
