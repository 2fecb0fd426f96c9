"""The campaign: kills, damaged and hostile files, full disks, two at a time, with a time budget."""
