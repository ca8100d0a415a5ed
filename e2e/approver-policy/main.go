// Judges requests for certificates by one policy, with the evaluators and the admission of approver-policy itself.
//
// Its input is JSON: a CertificateRequestPolicy and CertificateRequests. Its output is JSON: for each request why it is
// denied, or an empty text. A policy that approver-policy's webhook refuses is an error.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	policy "github.com/cert-manager/approver-policy/pkg/apis/policy/v1alpha1"
	"github.com/cert-manager/approver-policy/pkg/approver"
	// Registers the evaluators.
	_ "github.com/cert-manager/approver-policy/pkg/cmd"
	"github.com/cert-manager/approver-policy/pkg/registry"
	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
)

type input struct {
	Policy   policy.CertificateRequestPolicy  `json:"policy"`
	Requests []certmanager.CertificateRequest `json:"requests"`
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	decoder := json.NewDecoder(os.Stdin)
	// The API server prunes what it doesn't know, and a rule with it.
	decoder.DisallowUnknownFields()
	var given input
	if err := decoder.Decode(&given); err != nil {
		return fmt.Errorf("reading the policy and the requests: %w", err)
	}
	if err := admit(ctx, &given.Policy); err != nil {
		return err
	}
	answers := make([]string, 0, len(given.Requests))
	for at := range given.Requests {
		answer, err := judge(ctx, &given.Policy, &given.Requests[at])
		if err != nil {
			return fmt.Errorf("request %d: %w", at, err)
		}
		answers = append(answers, answer)
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

func admit(ctx context.Context, rules *policy.CertificateRequestPolicy) error {
	for _, webhook := range registry.Shared.Webhooks() {
		answer, err := webhook.Validate(ctx, rules)
		if err != nil {
			return fmt.Errorf("validating the policy: %w", err)
		}
		if !answer.Allowed {
			return fmt.Errorf("the policy is refused: %w", answer.Errors.ToAggregate())
		}
	}
	return nil
}

// judge returns the reason why a request is denied, or an empty text. An evaluator that fails approves nothing.
func judge(
	ctx context.Context, rules *policy.CertificateRequestPolicy, request *certmanager.CertificateRequest,
) (string, error) {
	evaluators := registry.Shared.Evaluators()
	if len(evaluators) == 0 {
		return "", fmt.Errorf("approver-policy has no evaluators")
	}
	for _, evaluator := range evaluators {
		answer, err := evaluator.Evaluate(ctx, rules, request)
		if err != nil {
			return fmt.Sprintf("error: %v", err), nil
		}
		if answer.Result == approver.ResultDenied {
			return fmt.Sprintf("denied: %s", answer.Message), nil
		}
	}
	return "", nil
}
