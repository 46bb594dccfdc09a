"""`python -m s2e` and the console script; Ctrl-C is handled before the slow import of the command line."""

from s2e.interrupts import end_on_ctrl_c


def main() -> None:
    """Run the command line."""
    end_on_ctrl_c()
    from s2e.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
