"""Writes the Grafana dashboard: ``python deploy/grafana/render.py >deploy/grafana/dashboard.json``.

Reads panels.toml; needs only Python. The user selects the Prometheus data source when importing the
dashboard. Grafana adds the dashboard's filters to each query, such as `namespace = chat`.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("panels.toml")
COLUMNS = 24
WIDTHS = {"timeseries": 8, "stat": 4}
HEIGHTS = {"timeseries": 8, "stat": 4}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def render(source: dict[str, Any]) -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in source["row"]:
        panels.append(_row(row["title"], top, len(panels) + 1))
        top, left, height = top + 1, 0, 0
        for each in row["panel"]:
            kind = each.get("kind", "timeseries")
            if left + WIDTHS[kind] > COLUMNS:
                top, left = top + height, 0
            height = HEIGHTS[kind]
            place = {"x": left, "y": top, "w": WIDTHS[kind], "h": height}
            panels.append(_panel(each, kind, place, len(panels) + 1))
            left += WIDTHS[kind]
        top += height
    return {
        "uid": source["uid"],
        "title": source["title"],
        "tags": ["chatserver"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": [_firing()]},
        "panels": panels,
    }


def _row(title: str, top: int, number: int) -> dict[str, Any]:
    place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place}


def _panel(source: dict[str, Any], kind: str, place: dict[str, int], number: int) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + n),
            "datasource": DATASOURCE,
            "expr": query,
            "legendFormat": legend,
        }
        for n, (query, legend) in enumerate(source["queries"])
    ]
    defaults: dict[str, Any] = {"unit": source["unit"], "min": 0}
    if "max_y" in source:
        defaults["max"] = source["max_y"]
    if kind == "timeseries":
        mode = "normal" if source.get("is_stacked") else "none"
        fill = 20 if source.get("is_stacked") else 0
        defaults["custom"] = {"fillOpacity": fill, "stacking": {"mode": mode, "group": "A"}}
    return {
        "id": number,
        "type": kind,
        "title": source["title"],
        "description": source["about"],
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {"name": "filters", "label": "Filters", "type": "adhoc", "datasource": DATASOURCE},
    ]


def _firing() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"Chat.*", alertstate="firing"}',
        "titleFormat": "{{alertname}}",
    }


def main() -> None:
    """Write the dashboard to standard output."""
    with SOURCE.open("rb") as file:
        sys.stdout.write(json.dumps(render(tomllib.load(file)), indent=1) + "\n")


if __name__ == "__main__":
    main()
