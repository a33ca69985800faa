"""Programs as graphs: how one is edited, checked, interpreted and recorded."""
