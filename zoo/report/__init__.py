"""What a person reads about a conversion: report.json, report.html, Markdown, an index."""
