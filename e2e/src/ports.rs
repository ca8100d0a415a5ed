//! Free loopback ports.
//!
//! They are taken from below the range that the kernel gives to outgoing connections: a server that is stopped and started again on its
//! port must not find a client's connection there.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
};

use anyhow::{Context, Result};

const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// A port on 127.0.0.1 that nobody listens on, given out once per process.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time look in different places.
    let offset = u16::try_from(std::process::id() % u32::from(COUNT))?;
    (0..COUNT)
        .map(|_| {
            let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            FIRST + (offset + step) % COUNT
        })
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .context("no free port on 127.0.0.1")
}
