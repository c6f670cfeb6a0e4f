"""What every back end must do, as tests that run against any of them.

    python -m sandbox.conformance --sandbox-backend=docker
    SANDBOX_BACKEND=docker pytest --pyargs sandbox.conformance

The back end is one of ours by name, or `package.module:factory` for another one: `factory()`
returns the back end (see `sandbox.backends.base`). The option may be repeated, the variable hold
several names with commas. Without both, the expectations run against all of ours that can be used
on this machine. The first form takes all of pytest's options.

An expectation that needs what a back end does not promise on this machine is skipped and says so:
its method `unenforced(policy)` (see `SandboxPolicy.enforced_by`) names the fields of the policy
that do not hold. Whatever is promised is expected.
"""
