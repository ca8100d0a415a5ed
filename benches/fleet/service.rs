//! The real gRPC service over an index, on its own thread as in the program. It can't write.

use std::time::Duration;

use app::service_of_index;
use index::Index;
use service::Service;
use service::listen::{GrpcThread, bind, cloud_provider, serve_on_own_thread};
use shared_informer::Spawner;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

/// Returns the service of an index. Its writes need no connection here.
fn service(index: Index, runtime: &Handle) -> Service {
    let _context = runtime.enter();
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    let client = kube::Client::try_from(nowhere).expect("a client");
    service_of_index(index, client, &Spawner::from(runtime))
}

/// Serves an index on a loopback port until `shutdown` is cancelled.
pub(crate) fn serve(index: Index, runtime: &Handle, shutdown: &CancellationToken) -> GrpcThread {
    let mut routes = Routes::builder();
    routes.add_service(cloud_provider(service(index, runtime)));
    let listener = bind("127.0.0.1:0".parse().expect("an address"), "--listen").expect("a listener");
    serve_on_own_thread(listener, None, routes.routes(), shutdown.clone(), Duration::ZERO).expect("a server")
}
