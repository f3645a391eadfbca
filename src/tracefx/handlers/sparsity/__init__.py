"""Which outputs depend on which inputs, and Jacobians and Hessians computed by that."""
