"""`python -m s2e` and the console script; signals are handled before the slow import of the command line."""

try:
    from s2e.interrupts import end_on_signals
except KeyboardInterrupt:  # Ctrl-C while even this is being imported
    import os

    os._exit(130)


def main() -> None:
    """Run the command line."""
    end_on_signals()
    from s2e.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
