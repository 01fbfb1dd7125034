"""What is done in a session that is there already, such as that of a notebook; `lastgood.spark` hands it on."""
