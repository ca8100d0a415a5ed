//! The pages, the gRPC thread and the shutdown, over real sockets where sockets matter.

mod admin;
mod aging;
mod default_limits;
mod floods;
mod grpc;
mod hostile_grpc;
mod pages;
mod tls;
mod unix_socket;

use std::{
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use super::{GrpcAddress, GrpcThread, bind};

/// Longer than anything here takes: only a defect reaches it.
const LIMIT: Duration = testkit::PATIENCE;

/// Returns the IP address and the port of gRPC.
fn tcp(grpc: &GrpcThread) -> SocketAddr {
    let GrpcAddress::Tcp(address) = grpc.address() else { panic!("{} is of IP", grpc.address()) };
    *address
}

fn listener() -> TcpListener {
    bind("127.0.0.1:0".parse().unwrap(), "--listen").unwrap()
}

#[test]
fn an_address_that_is_taken_is_named_with_its_flag() {
    let taken = listener().local_addr().unwrap();
    let held = TcpListener::bind(taken).unwrap();
    let message = bind(taken, "--http-listen").unwrap_err().to_string();
    assert!(message.starts_with(&format!("can't listen on {taken}: Address already in use")), "{message}");
    assert!(message.ends_with("choose another address with --http-listen"), "{message}");
    drop(held);
}
