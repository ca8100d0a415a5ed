//! The whole program on a sandbox, in-process or as a process that a shell runs: its commands, its status page, its
//! traces and the demonstration. A test takes seconds; the long ones about writes are in `tests/writes`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod autoscaler_loop;
mod command_line;
mod explain;
mod fleets;
mod log;
mod sandbox_demo;
mod sandboxed;
mod status_page;
mod watch;
mod world;

// The modules of the examples and benches, whose claims the tests check.
#[path = "../../examples/autoscaler_loop/args.rs"]
mod args;
#[path = "../../examples/autoscaler_loop/calls.rs"]
mod calls;
#[path = "../../benches/fleet/mod.rs"]
mod fleet;
#[path = "../../examples/autoscaler_loop/nodes.rs"]
mod nodes;
#[path = "../../examples/autoscaler_loop/report.rs"]
mod report;
#[path = "../../benches/fleet/service.rs"]
mod service;
