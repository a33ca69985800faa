"""Writes what people read about a conversion: report.json, report.html, Markdown, an index."""
