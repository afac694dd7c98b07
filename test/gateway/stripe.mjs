// Charges cards through the gateway with Stripe's own SDK: stripe.mjs HOST PORT COUNT
// Prints one JSON line per charge: what was asked for, and what came back. Then one for the same key with another amount.
import Stripe from 'stripe';

const [host, port, count] = process.argv.slice(2);
const stripe = new Stripe('sk_test_once', { host, port: Number(port), protocol: 'http', maxNetworkRetries: 5, timeout: 20000, telemetry: false });

async function charge(number) {
    const description = `charge-${process.pid}-${number}`;
    try {
        const made = await stripe.charges.create({ amount: 100 + number, currency: 'eur', source: 'tok_visa', description });
        return { description, id: made.id, amount: made.amount, replayed: made.lastResponse.headers['idempotency-replayed'] ?? null };
    } catch (error) {
        return { description, error: `${error.type} ${error.statusCode} ${error.message}` };
    }
}

async function reused() {
    const charge = amount => stripe.charges.create({ amount, currency: 'eur', source: 'tok_visa', description: `reused-${process.pid}` },
        { idempotencyKey: `reused-${process.pid}` });
    await charge(100);
    try {
        return { taken: await charge(4000) };
    } catch (error) {
        return { type: error.type, status: error.statusCode, code: error.code, message: error.message };
    }
}

const results = await Promise.all(Array.from({ length: Number(count) }, (_, number) => charge(number)));
for (const result of [...results, await reused()]) console.log(JSON.stringify(result));
