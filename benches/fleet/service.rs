//! The real gRPC service over an index, on its own thread as in the program. It can't write.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use capi::{Keys, Machine, ObjectKey};
use capi_autoscaler_provider::{
    grpc::{RpcMetrics, Service},
    index::{Freshness, Index},
    scale::{Api, EventRecorder, Scale, ScaleMetrics, ScaleOptions, WatchedMachines},
    server::{GrpcThread, bind, cloud_provider, serve_on_own_thread},
};
use prometheus_client::registry::Registry;
use shared_informer::AsOf;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

struct AlwaysFresh;

impl Freshness for AlwaysFresh {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

struct NothingWatched;

impl WatchedMachines for NothingWatched {
    fn as_of(&self, _: &ObjectKey, _: u64) -> AsOf<Machine> {
        AsOf::Behind
    }
}

/// Returns the writes of the service, which need no connection here.
fn scale(index: &Arc<Index>, runtime: &Handle) -> Scale {
    let _context = runtime.enter();
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    let client = kube::Client::try_from(nowhere).expect("a client");
    let api = Api::new(client, Arc::new(ArcSwapOption::empty()), Keys::new("cluster.x-k8s.io"));
    let metrics = ScaleMetrics::register(&mut Registry::default());
    let options = ScaleOptions::default();
    Scale::new(
        Arc::clone(index),
        api,
        Arc::new(NothingWatched),
        options,
        metrics,
        EventRecorder::off(),
        runtime.clone(),
    )
}

/// Serves an index on a loopback port until `shutdown` is cancelled.
pub(crate) fn serve(index: Index, runtime: &Handle, shutdown: &CancellationToken) -> GrpcThread {
    let index = Arc::new(index);
    let metrics = RpcMetrics::register(&mut Registry::default());
    let scale = scale(&index, runtime);
    let service = Service::new(index, scale, Arc::new(AlwaysFresh), metrics);
    let mut routes = Routes::builder();
    routes.add_service(cloud_provider(service));
    let listener = bind("127.0.0.1:0".parse().expect("an address"), "--listen").expect("a listener");
    serve_on_own_thread(listener, None, routes.routes(), shutdown.clone(), Duration::ZERO).expect("a server")
}
