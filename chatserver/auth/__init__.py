"""Who somebody is: the tokens that clients bring."""
