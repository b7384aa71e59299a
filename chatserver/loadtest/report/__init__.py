"""Load test reports: the result as JSON, text and HTML.

`result.py` builds the JSON result; `summary.py` prints it, `html_page.py` renders it with the
charts of `charts.py`, and `thresholds.py` decides whether the run passed.
"""
