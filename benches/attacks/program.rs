//! The addresses of the serving process that is attacked.

use std::net::SocketAddr;

use testkit::free_address;

use crate::serving::Serving;

/// The listeners of the program.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) probe: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// Starts the program against an API server.
pub(crate) fn start(api: SocketAddr) -> (Serving, Addresses) {
    let [grpc, http, probe, admin] = [(); 4].map(|()| free_address());
    let flags = [("--listen", grpc), ("--probe-listen", probe), ("--admin-listen", admin)];
    let flags = flags.map(|(flag, address)| format!("{flag}={address}"));
    (Serving::start(api, http, &flags), Addresses { grpc, http, probe, admin })
}
