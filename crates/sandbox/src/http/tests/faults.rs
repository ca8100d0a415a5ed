//! Faults of single requests.

use super::*;
use crate::faults::Fault;

#[tokio::test]
async fn an_answer_that_is_made_up_comes_as_often_as_was_said() -> Result<()> {
    let world = World::start().await?;
    let busy = Fault::refuse(429, "TooManyRequests", "slow down").with_header("retry-after", "7");
    let fault = world.server.faults().add(busy.on_verb("list").after(1).times(2));
    assert_eq!(world.get(MACHINES).await?.0, 200);
    let response = world.send(Method::GET, MACHINES, None).await?;
    assert_eq!(response.status().as_u16(), 429);
    assert_eq!(response.headers()["retry-after"], "7");
    let (status, body) = world.get(MACHINES).await?;
    assert_eq!((status, &body["reason"]), (429, &json!("TooManyRequests")));
    assert_eq!(world.get(MACHINES).await?.0, 200);
    assert_eq!(fault.hits(), 2);
    Ok(())
}

#[tokio::test]
async fn a_fault_strikes_only_what_it_is_for() -> Result<()> {
    let world = World::start().await?;
    let refusal = Fault::refuse(503, "ServiceUnavailable", "not now");
    world.server.faults().add(refusal.clone().on_path("^/api/v1/nodes\\?limit=")?);
    world.server.faults().add(refusal.on_method("POST"));
    assert_eq!(world.get("/api/v1/nodes").await?.0, 200);
    assert_eq!(world.get("/api/v1/nodes?limit=1").await?.0, 503);
    assert_eq!(world.post("a").await?, 503);
    world.server.faults().clear();
    assert_eq!(world.post("a").await?, 201);
    world.server.faults().add(Fault::refuse(503, "ServiceUnavailable", "not now").on_writes());
    assert_eq!((world.get(MACHINES).await?.0, world.post("b").await?), (200, 503));
    Ok(())
}

#[tokio::test]
async fn a_fault_spares_requests_with_the_token_that_it_names() -> Result<()> {
    let world = World::start().await?;
    let refusal = Fault::refuse(401, "Unauthorized", "Unauthorized").without_token("new").on_path("^/api/v1/nodes")?;
    world.server.faults().add(refusal);
    let status = async |token: Option<&str>| -> Result<u16> {
        let mut request = http::Request::get("/api/v1/nodes");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        Ok(world.client.send(request.body(Body::empty())?).await?.status().as_u16())
    };
    assert_eq!((status(None).await?, status(Some("old")).await?, status(Some("new")).await?), (401, 401, 200));
    assert_eq!(world.get(MACHINES).await?.0, 200);
    Ok(())
}

#[tokio::test]
async fn an_endless_answer_has_numbered_parts_until_the_fault_is_removed() -> Result<()> {
    let world = World::start().await?;
    let rest = "x".repeat(1_000);
    let part = format!("{{number}} {rest}\n").into();
    let fault = world.server.faults().add(Fault::new(Effect::Endless { opening: "0 ".into(), part }).on_verb("watch"));
    let mut watch = world.watch("").await?;
    assert_eq!(watch.line().await?, Some(format!("0 1 {rest}\n")));
    for number in 2..1_000 {
        assert_eq!(watch.line().await?, Some(format!("{number} {rest}\n")));
    }
    fault.remove();
    while watch.line().await?.is_some() {}
    assert_eq!((fault.hits(), world.get(MACHINES).await?.0), (1, 200));
    Ok(())
}

#[tokio::test]
async fn a_delay_is_over_when_the_clock_says_so() -> Result<()> {
    let world = World::start().await?;
    let fault = world.server.faults().add(Fault::new(Effect::Delay(Duration::from_secs(60))).times(1));
    let answer = world.post("a");
    let advance = async {
        fault.wait_for_hits(1).await;
        ensure!(world.api.get(&World::machines(), "default", "a").is_err(), "it was not delayed");
        // The delay may begin only after this check, so the clock advances until the delay is over.
        loop {
            world.api.clock().advance(Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        #[allow(unreachable_code, reason = "gives the block its type")]
        Ok(())
    };
    let status = tokio::select! {
        status = answer => status?,
        ended = advance => bail!("the clock stopped: {ended:?}"),
    };
    assert_eq!(status, 201);
    Ok(())
}

#[tokio::test]
async fn a_request_under_a_hold_fault_takes_effect_only_after_the_release() -> Result<()> {
    let world = World::start().await?;
    let fault = world.server.faults().add(Fault::new(Effect::Hold).on_verb("create"));
    let release = async {
        fault.wait_for_hits(1).await;
        let there = world.api.get(&World::machines(), "default", "a").is_ok();
        fault.release();
        there
    };
    let (status, there) = tokio::join!(world.post("a"), release);
    assert_eq!((status?, there), (201, false));
    Ok(())
}

#[tokio::test]
async fn a_request_under_a_hold_answer_fault_takes_effect_before_its_answer() -> Result<()> {
    let world = World::start().await?;
    let fault = world.server.faults().add(Fault::new(Effect::HoldAnswer).on_verb("create"));
    let release = async {
        fault.wait_for_hits(1).await;
        while world.api.get(&World::machines(), "default", "a").is_err() {
            tokio::task::yield_now().await;
        }
        let unanswered = world.server.requests().count(|request| request.status.is_none());
        fault.release();
        unanswered
    };
    let (status, unanswered) = tokio::join!(world.post("a"), release);
    assert_eq!((status?, unanswered), (201, 1));
    Ok(())
}

#[tokio::test]
async fn a_connection_is_cut_before_or_after_what_was_asked_is_done() -> Result<()> {
    let world = World::start().await?;
    for (effect, name, done) in [(Effect::CutBefore, "a", false), (Effect::CutAfter, "b", true)] {
        world.server.faults().add(Fault::new(effect).times(1));
        assert!(world.post(name).await.is_err());
        assert_eq!(world.api.get(&World::machines(), "default", name).is_ok(), done);
    }
    let unanswered = world.server.requests().count(|request| request.status.is_none());
    assert_eq!(unanswered, 2);
    Ok(())
}

#[tokio::test]
async fn garbage_is_no_json() -> Result<()> {
    let world = World::start().await?;
    world.server.faults().add(Fault::new(Effect::Garbage).times(1));
    assert!(world.get(MACHINES).await.is_err());
    assert_eq!(world.get(MACHINES).await?.0, 200);
    Ok(())
}
