"""Program graphs: editing, checking, interpreting and recording them."""
