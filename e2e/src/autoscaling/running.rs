//! An autoscaler at work in a scenario, with the program that it asks.

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinHandle;
use tonic::Code;

use super::{
    Autoscaler, Settings, Version,
    driver::Driver,
    record::{Call, Calls, Recorder},
    rules,
};
use crate::{
    controllers::stage::{Controllers, LOOK, PATIENCE, Stage},
    process::Process,
    provider::{Caller, Provider},
    users::User,
    wait::{eventually, every},
};

/// What runs. Dropping it ends both.
pub struct Autoscaling {
    /// The program, for the scenario's own questions, which aren't recorded.
    pub provider: Provider,
    /// What the autoscaler asked.
    pub calls: Calls,
    version: Version,
    running: Running,
    recorder: Recorder,
}

enum Running {
    Driver(JoinHandle<()>),
    Binary(Process),
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Self::Driver(task) => task.abort(),
            Self::Binary(_) => {}
        }
    }
}

impl Stage {
    /// Starts the program, and who scales here.
    pub async fn autoscale(&self, settings: Settings) -> Result<Autoscaling> {
        let provider = self.serve().await?;
        let recorder = Recorder::start(provider.channel(), self.directory().join("calls.txt")).await?;
        let autoscaler = self.autoscaler.as_ref().context("nobody scales in this scenario")?;
        let running = match autoscaler {
            Autoscaler::Driver(version) => {
                let caller = Caller::to(&recorder.address)?;
                let driver = Driver::new(caller, self.workload.clone(), *version, settings, self.directory())?;
                Running::Driver(tokio::spawn(driver.run()))
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
        Ok(Autoscaling { provider, calls, version: autoscaler.version(), running, recorder })
    }
}

impl Autoscaling {
    /// The version whose fields it sends and reads.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Waits until it has looked so many times more.
    pub async fn looks(&mut self, times: usize) -> Result<()> {
        let looked = self.calls.of("Refresh").len();
        every(LOOK, "more loops", PATIENCE, async || {
            if let Running::Binary(process) = &mut self.running {
                process.still_running()?;
            }
            let looks = self.calls.of("Refresh").len() - looked;
            ensure!(looks > times, "{looks} loops");
            Ok(())
        })
        .await
    }

    /// Waits for something, and fails early when the autoscaler ends.
    pub async fn until<T>(&mut self, what: &str, mut look: impl AsyncFnMut(&Provider) -> Result<T>) -> Result<T> {
        every(LOOK, what, PATIENCE, async || {
            if let Running::Binary(process) = &mut self.running {
                process.still_running()?;
            }
            look(&self.provider).await
        })
        .await
    }

    /// Waits until groups answer these sizes.
    pub async fn sizes(&mut self, expected: &[(&str, i32)]) -> Result<()> {
        self.until(&format!("sizes {expected:?}"), async |provider| {
            for (group, expected) in expected {
                let size = provider.target_size(group).await?;
                ensure!(size == *expected, "{group} has {size} instead of {expected}");
            }
            Ok(())
        })
        .await
    }

    /// Ends the autoscaler as a container runtime does, and holds all its calls to the rules. The program goes on.
    pub async fn end(&mut self) -> Result<Vec<Call>> {
        match &mut self.running {
            Running::Driver(task) => {
                task.abort();
                Caller::to(&self.recorder.address)?.cleanup().await?;
            }
            Running::Binary(process) => {
                process.terminate()?;
                process.ended(PATIENCE).await?;
            }
        }
        eventually("Cleanup", PATIENCE, async || {
            let cleanups = self.calls.of("Cleanup");
            ensure!(cleanups.iter().any(|call| call.code == Code::Ok), "{cleanups:?}");
            Ok(())
        })
        .await?;
        self.provider.ready().await.context("after Cleanup")?;
        let calls = self.calls.all();
        rules::hold(&calls, self.version)?;
        Ok(calls)
    }
}
