//! The parts of the bench, each of which may run without the others.

use clap::ValueEnum;

/// A part of the bench.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Part {
    /// Times, memory, watches, calls and events, beside one Cluster
    Size,
    /// Three of ten workload APIs cut all connections
    Dead,
    /// Three of ten workload APIs take requests and never answer
    Silent,
    /// Three of ten workload APIs answer late
    Slow,
    /// One of fifty workload APIs has an endless list, or a watch that repeats itself
    Hostile,
    /// A workload API changes a Node without end
    EndlessWatch,
    /// The kubeconfigs of three of ten Clusters are refused, and their Secrets hold none, or one without a token
    Secret,
    /// A MachineDeployment has ten thousand annotations, which change all the time
    Annotations,
    /// An autoscaler calls without end
    EndlessClient,
    /// Three autoscalers call without end
    EndlessClients,
}

impl Part {
    /// Returns the parts with calls in turns without and with an attack or ailment.
    pub(crate) fn in_turns() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied().filter(|part| *part != Self::Size)
    }

    /// Returns the cause of others' p99.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::Dead => "30 % dead APIs",
            Self::Silent => "30 % silent APIs",
            Self::Slow => "30 % slow APIs",
            Self::Hostile => "2 % hostile APIs",
            Self::EndlessWatch => "an endless watch",
            Self::Secret => "30 % bad Secrets",
            Self::Annotations => "10,000 annotations",
            Self::EndlessClient => "an endless client",
            Self::EndlessClients => "three endless clients",
            Self::Size => "",
        }
    }

    /// Returns the highest ratio of others' p99: what fails by itself costs them nothing, and one tenant that does its
    /// worst has no more than a second of them would have. Three have more than a thread can answer.
    pub(crate) fn limit(self) -> f64 {
        match self {
            Self::Dead | Self::Silent | Self::Slow | Self::Secret => 1.2,
            Self::EndlessClients => f64::INFINITY,
            _ => 2.0,
        }
    }
}
