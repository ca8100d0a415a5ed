use std::{
    future::{pending, ready},
    sync::atomic::{AtomicBool, Ordering},
};

use tokio::{task::yield_now, time::Instant};

use crate::listen::{GRACE, Outcome, Shutdown};

#[tokio::test]
async fn work_is_not_begun_before_the_end_is_asked_for() {
    let (shutdown, begun) = (Shutdown::new(), AtomicBool::new(false));
    let finishing = shutdown.finish(async { begun.store(true, Ordering::SeqCst) });
    let (outcome, ()) = tokio::join!(finishing, async {
        yield_now().await;
        assert!(!begun.load(Ordering::SeqCst));
        shutdown.request();
    });
    assert_eq!(outcome, Outcome::Finished);
    assert!(begun.load(Ordering::SeqCst) && shutdown.stopping().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn work_has_ten_seconds() {
    let (shutdown, start) = (Shutdown::new(), Instant::now());
    shutdown.request();
    assert_eq!(shutdown.finish(pending()).await, Outcome::OutOfTime);
    assert_eq!(start.elapsed().as_secs(), GRACE.as_secs());
    assert_eq!(shutdown.finish(ready(())).await, Outcome::Finished);
}

#[tokio::test(start_paused = true)]
async fn a_second_request_ends_it_at_once() {
    let (shutdown, start) = (Shutdown::new(), Instant::now());
    shutdown.request();
    let (outcome, ()) = tokio::join!(shutdown.finish(pending()), async {
        yield_now().await;
        shutdown.request();
    });
    assert_eq!(outcome, Outcome::Cut);
    assert_eq!(start.elapsed().as_secs(), 0);
}
