"""What the Ceph backends and the Ceph test bed share; nothing here needs Ceph when imported."""
