//! Free loopback ports.
//!
//! They are below the range that the kernel uses for outgoing connections: a server that is restarted on its port must
//! not find it taken by a client's connection.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
};

use anyhow::{Context, Result};

const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// Returns a free port on 127.0.0.1, once per process.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent processes start their search at different ports.
    let offset = u16::try_from(std::process::id() % u32::from(COUNT))?;
    (0..COUNT)
        .map(|_| {
            let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            FIRST + (offset + step) % COUNT
        })
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .context("no free port on 127.0.0.1")
}
