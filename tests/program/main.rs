//! The whole program on a sandbox, in-process or as a process that a shell runs: its commands, its status page, its
//! traces and the demonstration. A test takes seconds; `tests/writes` counts the requests of writes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod autoscaler_loop;
mod command_line;
mod explain;
mod fleets;
mod sandbox_demo;
mod status_page;
mod traces;
mod watch;
mod world;

// The modules of the examples and benches, whose claims the tests check.
#[allow(dead_code, reason = "the example has a main of its own, and a table")]
#[path = "../../examples/autoscaler_loop.rs"]
mod autoscaler_loop_example;
#[path = "../../benches/fleet/mod.rs"]
mod fleet;
#[path = "../../benches/fleet/service.rs"]
mod service;
