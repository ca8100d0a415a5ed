//! The conformance suite on the sandbox. The same cases run on a real API server among the end-to-end tests.

mod cases;

use std::{process::ExitCode, sync::Arc};

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use sandbox::{api::Api, clock::Clock, http::ApiServer};
use tokio::runtime::Runtime;

/// The number of cases that run concurrently: cases mostly wait.
const AT_ONCE: usize = 8;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let runtime = Arc::new(Runtime::new()?);
    let api = Api::new(Clock::real());
    let server = runtime.block_on(ApiServer::start(api.clone()))?;
    let forget = move || {
        api.forget_history();
        Box::pin(async { Ok(()) }) as _
    };
    let client = {
        let _inside = runtime.enter();
        let mut config = kube::Config::new(server.url().parse()?);
        // A case sees each answer unchanged.
        config.default_retry = false;
        kube::Client::try_from(config)?
    };
    let suite = Arc::new(cases::Suite::new(client, Box::new(forget)));
    let trials = cases::cases()
        .into_iter()
        .map(|case| {
            let (runtime, suite) = (Arc::clone(&runtime), Arc::clone(&suite));
            let run = move || runtime.block_on(suite.run(case)).map_err(|error| Failed::from(format!("{error:#}")));
            Trial::test(case.name, run)
        })
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    runtime.block_on(server.shutdown());
    Ok(conclusion.exit_code())
}
