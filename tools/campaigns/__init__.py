"""Campaigns: what breaks files, disks and processes on purpose, to see that nothing is lost and nothing is believed."""
