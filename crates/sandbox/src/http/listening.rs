//! A listener and its connections, which end together.

use std::{sync::Arc, time::Duration};

use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::answer::{Answer, Cut};

/// A running listener. Dropping it ends it, with all its connections.
#[derive(Debug)]
pub(super) struct Listening {
    ended: CancellationToken,
    tasks: TaskTracker,
}

impl Listening {
    /// Answers all requests of a listener by `serve`, until `ended` is cancelled.
    pub(super) fn start<T, S, F>(listener: TcpListener, shared: Arc<T>, ended: CancellationToken, serve: S) -> Self
    where
        T: Send + Sync + 'static,
        S: Fn(Arc<T>, http::Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Answer, Cut>> + Send + 'static,
    {
        let tasks = TaskTracker::new();
        let service = move |request| serve(Arc::clone(&shared), request);
        tasks.spawn(accept(service, listener, ended.clone(), tasks.clone()));
        Self { ended, tasks }
    }

    /// Ends it, and waits until all its connections are closed.
    pub(super) async fn shutdown(self) {
        self.ended.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

async fn accept<S, F>(service: S, listener: TcpListener, ended: CancellationToken, tasks: TaskTracker)
where
    S: Fn(http::Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Answer, Cut>> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            () = ended.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(connection(service.clone(), stream, ended.clone()));
            }
            // The likely cause is too many open files, some of which will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn connection<S, F>(service: S, stream: TcpStream, ended: CancellationToken)
where
    S: Fn(http::Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Result<Answer, Cut>> + Send + 'static,
{
    // A small answer must not wait for the next one.
    let _ = stream.set_nodelay(true);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new());
    tokio::select! {
        () = ended.cancelled() => {}
        // The client sees an error on its connection itself.
        _ = builder.serve_connection(TokioIo::new(stream), service_fn(service)) => {}
    }
}
