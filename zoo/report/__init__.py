"""Reports on a conversion for people: report.json, report.html, Markdown, an index."""
