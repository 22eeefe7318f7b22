"""Balance by load: what nodes carry, and the plan that evens it out."""
