"""What a read was asked to do, how it logs in, and where keys are: checked, and ready to be pickled."""
