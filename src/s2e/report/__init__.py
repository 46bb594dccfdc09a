"""The report: one self-contained HTML page about one run or several."""

from s2e.report.page import Report, build_report, write_report

__all__ = ["Report", "build_report", "write_report"]
