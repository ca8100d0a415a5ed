//! One loop of a Cluster Autoscaler over a real connection to the service: 200 groups with 5,000 Machines, beside as many
//! empty calls. It plays what `examples/autoscaler_loop.rs` plays, with server and client in one process on two threads.

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

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use capi_autoscaler_provider::{
    capi::Keys,
    grpc::{Freshness, RpcMetrics, Service},
    scale::{Api, Scale, ScaleMetrics},
    server::{GrpcThread, bind, cloud_provider, serve_on_own_thread},
};
use clap::Parser as _;
use prometheus_client::registry::Registry;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

const GROUPS: usize = 200;
const LOOPS: usize = 3;

struct AlwaysFresh;

impl Freshness for AlwaysFresh {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Nothing is written, so nothing is connected to.
fn scale(index: &Arc<capi_autoscaler_provider::index::Index>, runtime: &Runtime) -> Scale {
    let _context = runtime.enter();
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    let client = kube::Client::try_from(nowhere).expect("a client");
    let api = Api::new(client, Arc::new(ArcSwapOption::empty()), Keys::new("cluster.x-k8s.io"));
    let metrics = ScaleMetrics::register(&mut Registry::default());
    Scale::new(Arc::clone(index), api, metrics, runtime.handle().clone())
}

fn serve(runtime: &Runtime, shutdown: &CancellationToken) -> GrpcThread {
    let index = Arc::new(fleet::fleet(GROUPS));
    let metrics = RpcMetrics::register(&mut Registry::default());
    let scale = scale(&index, runtime);
    let service = Service::new(index, scale, Arc::new(AlwaysFresh), metrics);
    let mut routes = Routes::builder();
    routes.add_service(cloud_provider(service));
    let listener = bind("127.0.0.1:0".parse().expect("an address"), "--listen").expect("a listener");
    serve_on_own_thread(listener, routes.routes(), shutdown.clone(), Duration::ZERO).expect("a server")
}

fn main() {
    let writes = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let shutdown = CancellationToken::new();
    let server = serve(&writes, &shutdown);
    let address = server.address().to_string();
    let nodes = (GROUPS * fleet::MACHINES_PER_GROUP).to_string();
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
