//! The real gRPC service over an index, on its own thread as in the program. It can't write.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use capi::{Keys, Machine, ObjectKey};
use capi_autoscaler_provider::{
    app::Backend,
    grpc::{CallLogOptions, Service},
    index::{Freshness, Index},
    scale::{EventRecorder, ScaleMetrics, ScaleOptions, WatchedMachines},
    server::{GrpcThread, bind, cloud_provider, serve_on_own_thread},
};
use prometheus_client::registry::Registry;
use shared_informer::{AsOf, Spawner};
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

/// Returns the service of an index. Its writes need no connection here.
fn service(index: Index, runtime: &Handle) -> Service {
    let _context = runtime.enter();
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    let backend = Backend {
        index: Arc::new(index),
        freshness: Arc::new(AlwaysFresh),
        machines: Arc::new(NothingWatched),
        client: kube::Client::try_from(nowhere).expect("a client"),
        resources: Arc::new(ArcSwapOption::empty()),
        keys: Keys::default(),
    };
    let registry = &mut Registry::default();
    let writes = (ScaleMetrics::register(registry), EventRecorder::off());
    backend.answer(ScaleOptions::default(), writes, CallLogOptions::default(), registry, &Spawner::from(runtime)).1
}

/// Serves an index on a loopback port until `shutdown` is cancelled.
pub(crate) fn serve(index: Index, runtime: &Handle, shutdown: &CancellationToken) -> GrpcThread {
    let mut routes = Routes::builder();
    routes.add_service(cloud_provider(service(index, runtime)));
    let listener = bind("127.0.0.1:0".parse().expect("an address"), "--listen").expect("a listener");
    serve_on_own_thread(listener, None, routes.routes(), shutdown.clone(), Duration::ZERO).expect("a server")
}
