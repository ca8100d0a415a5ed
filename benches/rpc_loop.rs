//! One loop of a Cluster Autoscaler over a real connection to the service: 200 groups with 5,000 Machines, beside as
//! many empty calls. It makes the calls of `examples/autoscaler_loop.rs`, with server and client in one process on two
//! threads.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used)]

#[path = "../examples/autoscaler_loop/args.rs"]
mod args;
#[path = "../examples/autoscaler_loop/calls.rs"]
mod calls;
mod fleet;
#[path = "../examples/autoscaler_loop/nodes.rs"]
mod nodes;
#[path = "../examples/autoscaler_loop/report.rs"]
mod report;
#[path = "fleet/service.rs"]
mod service;

use clap::Parser as _;
use index::Index;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

const GROUPS: usize = 200;
const MACHINES_PER_GROUP: usize = 25;
const LOOPS: usize = 3;

fn main() {
    let writes = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let shutdown = CancellationToken::new();
    let index = Index::new(fleet::rules());
    fleet::fill(&index, GROUPS, MACHINES_PER_GROUP);
    let server = service::serve(index, writes.handle(), &shutdown);
    let address = server.address().to_string();
    let nodes = (GROUPS * MACHINES_PER_GROUP).to_string();
    let flags = ["rpc_loop", "--address", &address, "--nodes", &nodes, "--empty", "both"];
    let args = args::Args::parse_from(flags);
    let client = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let report = client.block_on(async {
        let mut caller = calls::Caller::connect(&args.address, (&args).into()).await.expect("a connection");
        let fleet = nodes::fleet(&mut caller, &args).await.expect("Nodes");
        for _ in 0..LOOPS {
            caller.play(&fleet).await.expect("a loop");
        }
        report::Report::new((&args).into(), &fleet, LOOPS, caller.samples())
    });
    println!("{}", report.table());
    shutdown.cancel();
}
