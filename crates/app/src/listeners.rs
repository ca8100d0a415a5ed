//! The listeners, which are opened before anything is started, and their addresses.

use std::net::{SocketAddr, TcpListener};

use tracing::info;

use super::{Config, StartError};
use service::listen::{GrpcListener, bind};

/// The open listeners.
pub(super) struct Listeners {
    pub(super) grpc: GrpcListener,
    pub(super) http: TcpListener,
    pub(super) probes: Option<TcpListener>,
    pub(super) admin: Option<TcpListener>,
}

/// The addresses of the HTTP listeners.
pub(super) struct Addresses {
    pub(super) http: SocketAddr,
    pub(super) probes: Option<SocketAddr>,
    pub(super) admin: Option<SocketAddr>,
}

impl Listeners {
    /// Opens the listeners. An error names the flag of the one that can't be opened.
    pub(super) fn open(config: &Config) -> Result<Self, StartError> {
        let open = |address: Option<SocketAddr>, flag| address.map(|address| bind(address, flag)).transpose();
        Ok(Self {
            grpc: GrpcListener::open(&config.listen, config.socket_mode, Config::LISTEN_FLAG)?,
            http: bind(config.http_listen, Config::HTTP_LISTEN_FLAG)?,
            probes: open(config.probe_listen, Config::PROBE_LISTEN_FLAG)?,
            admin: open(config.admin_listen, Config::ADMIN_LISTEN_FLAG)?,
        })
    }

    pub(super) fn addresses(&self) -> Result<Addresses, StartError> {
        let address = |listener: &TcpListener| listener.local_addr().map_err(StartError::Address);
        Ok(Addresses {
            http: address(&self.http)?,
            probes: self.probes.as_ref().map(address).transpose()?,
            admin: self.admin.as_ref().map(address).transpose()?,
        })
    }
}

impl Addresses {
    pub(super) fn log(&self) {
        info!(address = %self.http, "serving HTTP");
        if let Some(address) = self.probes {
            info!(%address, "serving probes");
        }
        if let Some(address) = self.admin {
            info!(%address, "serving the status page and the debug state");
        }
    }
}
