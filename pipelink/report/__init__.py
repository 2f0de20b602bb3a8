"""What people and programs read: diagnostics, the map, contracts."""
