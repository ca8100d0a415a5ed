//! A running autoscaler in a scenario, with the program that it calls.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinHandle;
use tonic::Code;

use super::testbed::{Controllers, POLL_INTERVAL, TIMEOUT, Testbed};
use crate::{
    autoscaling::{
        self, Autoscaler, Settings, Version,
        record::{Call, Calls, Recorder},
        rules,
    },
    existing::Status,
    objects::Objects,
    process::Process,
    provider::{Caller, Provider},
    users::User,
    wait::{Permanent, eventually, every},
};

/// A running autoscaler and program. Dropping it ends both, except those that were running before.
pub struct Autoscaling {
    /// The calls of the autoscaler, empty for one that was running before.
    pub calls: Calls,
    objects: Objects,
    timeout: Duration,
    running: Running,
    /// The program, for the scenario's own calls, which aren't recorded. `None` if it was running before.
    started: Option<Started>,
}

/// The program and the recorder that a scenario has started beside the autoscaler.
struct Started {
    provider: Provider,
    recorder: Recorder,
    version: Version,
}

enum Running {
    Driver(JoinHandle<()>),
    Binary(Process),
    /// An installed Cluster Autoscaler with the program.
    Installed(Status),
}

impl Running {
    /// Fails at once if waiting is hopeless.
    fn check(&mut self, calls: &Calls) -> Result<()> {
        if let Self::Binary(process) = self {
            process.still_running()?;
        }
        // Checking all calls is slow, and few scenarios have several decreases.
        if calls.of("NodeGroupDecreaseTargetSize").len() > 1 {
            rules::loops_are_not_skipped_for_ever(&calls.all()).map_err(|error| Permanent(format!("{error:#}")))?;
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Self::Driver(task) => task.abort(),
            Self::Binary(_) | Self::Installed(_) => {}
        }
    }
}

impl Testbed {
    /// Starts the program and the autoscaler. Existing ones keep their settings.
    pub async fn autoscale(&self, settings: Settings) -> Result<Autoscaling> {
        if let Some(tenant) = self.tenant() {
            let status = tenant.status();
            every(POLL_INTERVAL, "the status of Cluster Autoscaler", self.timeout(), async || status.version().await)
                .await?;
            tenant.allow_scaling().await?;
            return Ok(Autoscaling {
                calls: Calls::default(),
                objects: self.objects.clone(),
                timeout: self.timeout(),
                running: Running::Installed(status),
                started: None,
            });
        }
        self.autoscale_by(self.serve().await?, settings).await
    }

    /// Starts the autoscaler with a program that is already running.
    pub async fn autoscale_by(&self, provider: Provider, settings: Settings) -> Result<Autoscaling> {
        let recorder = Recorder::start(provider.channel(), self.directory().join("calls.txt")).await?;
        let autoscaler = self.autoscaler.as_ref().context("nobody scales in this scenario")?;
        let running = match autoscaler {
            Autoscaler::Driver(version) => {
                let log = self.directory().join("cluster-autoscaler.log");
                Running::Driver(autoscaling::drive(&recorder.address, &self.workload, *version, settings, &log)?)
            }
            Autoscaler::Binary(binary) => {
                let Controllers::Real(environment) = &self.controllers else {
                    anyhow::bail!("Cluster Autoscaler needs a real API server");
                };
                let kubeconfig = environment.workload.kubeconfig(&User::administrator());
                Running::Binary(binary.start(self.directory(), &kubeconfig, &recorder.address, settings)?)
            }
        };
        let calls = recorder.calls.clone();
        let started = Some(Started { provider, recorder, version: autoscaler.version() });
        Ok(Autoscaling { calls, objects: self.objects.clone(), timeout: self.timeout(), running, started })
    }
}

impl Autoscaling {
    /// Returns the version whose fields it sends and reads, if it is known.
    pub fn version(&self) -> Option<Version> {
        self.started.as_ref().map(|started| started.version)
    }

    /// Waits for a number of further loops.
    pub async fn wait_for_loops(&mut self, times: usize) -> Result<()> {
        let looked = self.calls.of("Refresh").len();
        let mut last = String::new();
        let mut seen = 0;
        every(POLL_INTERVAL, "more loops", self.timeout, async || {
            let looks = match &mut self.running {
                Running::Driver(_) => self.calls.of("Refresh").len() - looked,
                Running::Binary(process) => {
                    process.still_running()?;
                    self.calls.of("Refresh").len() - looked
                }
                Running::Installed(status) => {
                    let now = status.version().await?;
                    // The first one is of a loop that had already begun.
                    seen += usize::from(now != last);
                    last = now;
                    seen.saturating_sub(1)
                }
            };
            ensure!(looks > times, "{looks} loops");
            Ok(())
        })
        .await
    }

    /// Waits for a condition, and fails early if the autoscaler ends or skips all its loops.
    pub async fn until<T>(&mut self, what: &str, mut look: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        every(POLL_INTERVAL, what, self.timeout, async || {
            self.running.check(&self.calls)?;
            look().await
        })
        .await
    }

    /// Waits until groups have these sizes: as the program answers or, if it can't be called, as their objects say.
    pub async fn sizes(&mut self, expected: &[(&str, i32)]) -> Result<()> {
        every(POLL_INTERVAL, &format!("sizes {expected:?}"), self.timeout, async || {
            self.running.check(&self.calls)?;
            for (group, expected) in expected {
                let size = match &self.started {
                    Some(started) => started.provider.target_size(group).await?,
                    None => size_of(&self.objects, group).await?,
                };
                ensure!(size == *expected, "{group} has {size} instead of {expected}");
            }
            Ok(())
        })
        .await
    }

    /// Ends the autoscaler as a container runtime does, and checks all its calls against the rules. The program keeps
    /// running. An autoscaler that was running before isn't ended, and its calls aren't known.
    pub async fn end(&mut self) -> Result<Option<Vec<Call>>> {
        let Some(started) = &mut self.started else { return Ok(None) };
        match &mut self.running {
            Running::Driver(task) => {
                task.abort();
                Caller::to(&started.recorder.address)?.cleanup().await?;
            }
            Running::Binary(process) => {
                process.terminate()?;
                process.ended(TIMEOUT).await?;
            }
            Running::Installed(_) => return Ok(None),
        }
        eventually("Cleanup", TIMEOUT, async || {
            let cleanups = self.calls.of("Cleanup");
            ensure!(cleanups.iter().any(|call| call.code == Code::Ok), "{cleanups:?}");
            Ok(())
        })
        .await?;
        started.provider.ready().await.context("after Cleanup")?;
        let calls = self.calls.all();
        rules::hold(&calls, started.version)?;
        Ok(Some(calls))
    }
}

/// Returns the size in the object of a group, by the group's id.
async fn size_of(objects: &Objects, group: &str) -> Result<i32> {
    let mut parts = group.split('/');
    let (kind, name) = (parts.next().unwrap_or_default(), parts.next_back().unwrap_or_default());
    objects.scale(kind, name).await
}
