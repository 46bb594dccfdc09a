"""The methods: how samples are weighted in a step, one small file each."""
