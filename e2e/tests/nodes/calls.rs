//! Calls that go on while certificates, Pods and versions change.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use e2e::{
    nodes::{Connection, POLL_INTERVAL, TIMEOUT, Testbed, create_group},
    wait::every,
};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::pod::{VISIBLE_WITHIN, uids};

/// A task that makes calls over connections of its own, one after the other, until it is ended.
struct Calls {
    task: JoinHandle<()>,
    made: Arc<AtomicUsize>,
    failed: Arc<Mutex<Vec<String>>>,
}

impl Calls {
    /// Reads the groups both over one lasting connection and over a new one each time.
    fn start(connection: Connection, expected: &str) -> Self {
        let made = Arc::new(AtomicUsize::new(0));
        let failed = Arc::new(Mutex::new(Vec::new()));
        let (counted, failures, expected) = (Arc::clone(&made), Arc::clone(&failed), expected.to_owned());
        let task = tokio::spawn(async move {
            let kept = connection.caller();
            let mut interval = tokio::time::interval(Duration::from_millis(100));
            loop {
                interval.tick().await;
                for (way, caller) in [("the kept connection", kept.clone()), ("a new connection", connection.caller())]
                {
                    let answer = caller.refreshed_ids().await;
                    if !answer.as_ref().is_ok_and(|ids| *ids == [expected.as_str()]) {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{way}: {answer:?}"));
                    }
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { task, made, failed }
    }

    /// Waits for some more calls, ends, and fails if any failed.
    async fn end(self) -> Result<usize> {
        let until = self.made.load(Ordering::Relaxed) + 20;
        every(POLL_INTERVAL, "some more calls", VISIBLE_WITHIN, async || {
            ensure!(self.made.load(Ordering::Relaxed) >= until, "{:?} calls", self.made);
            Ok(())
        })
        .await?;
        self.task.abort();
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(failed.is_empty(), "{} of {:?} calls failed: {:?}", failed.len(), self.made, failed.first());
        Ok(self.made.load(Ordering::Relaxed))
    }
}

pub(crate) async fn certificates_are_renewed_while_an_autoscaler_calls(testbed: &Testbed<'_>) -> Result<()> {
    let release = testbed.release();
    let group = create_group(&testbed.objects, "workers", 0).await?;
    let pods = release.apply("install", &release.values()).await?;
    let connection = release.connection().await?;
    connection.caller().shows(&[&group.id]).await?;
    let before = connection.certificate().await?;
    let calls = Calls::start(connection.clone(), &group.id);

    // A new DNS name makes the chart issue another server certificate, which the kubelets update in the running Pods.
    let renamed = release.values().set("tls.dnsNames", json!(["provider.example.com"]));
    let after = release.apply("upgrade", &renamed).await?;
    ensure!(uids(&after) == uids(&pods), "new Pods were made for a certificate that the old ones read");
    // Each Pod has its own copy; a connection may reach any Pod.
    let mut seen_in_a_row = 0;
    every(POLL_INTERVAL, "the new certificate at all Pods", TIMEOUT, async || {
        let new = connection.certificate().await? != before;
        seen_in_a_row = if new { seen_in_a_row + 1 } else { 0 };
        ensure!(seen_in_a_row >= 20, "the new certificate was shown {seen_in_a_row} times in a row");
        Ok(())
    })
    .await?;
    let made = calls.end().await?;
    ensure!(made > 100, "only {made} calls");
    Ok(())
}

pub(crate) async fn an_upgrade_fails_no_call(testbed: &Testbed<'_>) -> Result<()> {
    let release = testbed.release();
    let group = create_group(&testbed.objects, "workers", 2).await?;
    let pods = release.apply("install", &release.values()).await?;
    let connection = release.connection().await?;
    connection.caller().shows(&[&group.id]).await?;
    let calls = Calls::start(connection, &group.id);
    let values = release.values().set("extraArgs", json!({ "log-format": "json" }));
    let upgraded = release.apply("upgrade", &values).await?;
    ensure!(uids(&upgraded).is_disjoint(&uids(&pods)), "an old Pod is still there");
    calls.end().await?;
    Ok(())
}
