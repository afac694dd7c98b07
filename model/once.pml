/*
 * once.pml - the protocol as a model for Spin: who may act for a record, and what is never lost.
 *
 * One key of one tenant, its record in a store, workers that serve copies of the same request, a completer, an
 * operator, expiry, and a callee. Everything that may go wrong goes wrong at every moment, as often as a budget
 * says: workers die, leases end under living holders, answers of the store get lost, calls are refused or break off.
 * `model/check` runs it; docs/internals/model.md tells each rule and what happens without it.
 *
 * Which part stands for which code
 *   claim_record()      once_decide_claim() in decide.c, all seven arms, called by sqlite_op_claim(); once.claim_record
 *                       in 30_protocol.sql. A step of the store is atomic and durable: d_step
 *   extend, advance,    sqlite_op_held(); load_held() in it is `is_mine`. PostgreSQL ends
 *   finish, release     an attempt with a result, and a takeover ends it as superseded: `st == RUNNING` here
 *   leave()             once_decide_release(); in PostgreSQL once.release_record and once.abandon_record
 *   taken_by            the claim's nonce; `did` is the attempt's own row, by which an operation that is applied again
 *                       after a lost answer recognises itself (sqlite_op_answer_if_done())
 *   take_over()         once_decide_take_over(), as the completer calls it
 *   Worker              once_run() and its callback, or the gateway: the phases are book (a local effect, committed
 *                       with the advance), perhaps the intent to call, the call, the finish, the answer
 *   World               leases (the store's clock), expiry (once_stored_is_expired), and the daemon that releases a
 *                       grant of which its client never heard (src/daemon/socket/conn.c)
 *   Operator            sqlite_op_verdict(), with the fence that the operator saw
 *
 * POLICY is what all claims say, and what the callee is like:
 *   ESCALATE   the callee does not know keys: the claim itself is the intent to call
 *   RERUN      it honours the child key
 *   INTENT     it does not, and the handler records that it is about to call; takeover is `rerun`
 *   PROBE      it can be asked what happened, and refuses fences older than one it has seen
 *   LEFT       the same as PROBE, but only the completer can ask (takeover `completer`, ADR 26): claims leave what was
 *              abandoned, and whoever called in vain leaves the record running
 *   MARK       it does not know keys; takeover is `escalate`, and the store itself heeds the mark: whoever is about to
 *              call has recorded a recovery point before, so where there is none nothing was sent (ADR 20)
 *
 * A life is from a key's first claim until its outcome's retention is over; after that the same key is another
 * operation, by contract, also for a copy of an old request that the network delivers only then.
 *
 * Ghosts (what nobody can see): booked, charged, stored, ... The properties are asserted where the thing happens, by
 * the names of docs/design.md: assert(K3_... || ...) fails with that name in its text. `The_end` asserts what has to be
 * true when nothing can happen any more; no run is endless (`model/check` looks for cycles), so this is liveness. What
 * is printed is seen in the trail of a run that breaks something: model/check --trail.
 *
 * Not here: several tenants (K9), batches, how long a lease lasts, bytes, a store that loses what was durable
 * (failover to a lagging standby, a restored backup), outbox and inbox (K12, K13), operations that a
 * server reads long after its client settled (docs/design.md section 7).
 */

#define ESCALATE 1
#define RERUN    2
#define INTENT   3
#define PROBE    4
#define MARK     5
#define LEFT     6
#define CAN_ASK  (POLICY == PROBE || POLICY == LEFT)
#ifndef POLICY
#define POLICY ESCALATE
#endif

/* ------------------------------------------------------------------ sizes */

#ifndef COPIES
#define COPIES 2 /* of the request: the first, a retry, one that comes late */
#endif
#ifndef STRANGERS
#define STRANGERS 1 /* another request under the same key */
#endif
#ifndef FAULTS
#define FAULTS 2 /* in one run: deaths, leases over too early, lost answers, troubles with the callee */
#endif
#ifndef RENEWALS
#define RENEWALS 0
#endif
#ifndef VERDICTS
#define VERDICTS 1
#endif
#ifndef LIVES
#define LIVES 2
#endif

/* ------------------------------------------------------------------ the rules */

/* Each is 1, or 0 in a model from which it was taken: spin -DWITHOUT_FENCE ... */
#ifdef WITHOUT_FENCE
#define FENCE 0 /* extend, advance, finish, release: only under the newest grant */
#else
#define FENCE 1
#endif
#ifdef WITHOUT_FINAL
#define FINAL 0 /* a finish changes only what is running: not an outcome, not `unknown` */
#else
#define FINAL 1
#endif
#ifdef WITHOUT_SEQUENCE
#define SEQUENCE 0 /* fences come from one sequence of the store, not from the record */
#else
#define SEQUENCE 1
#endif
#ifdef WITHOUT_FINGERPRINT
#define FINGERPRINT 0 /* another request under the key is refused */
#else
#define FINGERPRINT 1
#endif
#ifdef WITHOUT_UNIQUE
#define UNIQUE 0 /* a claim looks and writes in one step */
#else
#define UNIQUE 1
#endif
#ifdef WITHOUT_LEASE
#define LEASE 0 /* nobody takes over before the lease is over */
#else
#define LEASE 1
#endif
#ifdef WITHOUT_NONCE
#define NONCE 0 /* a claim that is repeated is recognised */
#else
#define NONCE 1
#endif
#ifdef WITHOUT_ESCALATION
#define ESCALATION 0 /* what may have been sent to a callee without keys is not sent again */
#else
#define ESCALATION 1
#endif
#ifdef WITHOUT_CHILD_KEY
#define CHILD_KEY 0 /* every attempt sends the callee the same key */
#else
#define CHILD_KEY 1
#endif
#ifdef WITHOUT_INTENT
#define INTEND 0 /* the intent is recorded before the call */
#else
#define INTEND 1
#endif
#ifdef WITHOUT_HEED
#define HEED 0 /* who finds an intent does not call */
#else
#define HEED 1
#endif
#ifdef WITHOUT_WITHDRAWAL
#define WITHDRAWAL 0 /* an intent that came to nothing is withdrawn: by a further point */
#else
#define WITHDRAWAL 1
#endif
#ifdef WITHOUT_DOUBT
#define DOUBT 0 /* a call that broke off (5xx, timeout, half an answer) is unknown, not a failure to retry */
#else
#define DOUBT 1
#endif
#ifdef WITHOUT_TRANSACTION
#define TRANSACTION 0 /* a phase's local effect commits with its advance */
#else
#define TRANSACTION 1
#endif
#ifdef WITHOUT_CARRY
#define CARRY 0 /* the next attempt begins at the recovery point of the last */
#else
#define CARRY 1
#endif
#ifdef WITHOUT_FIRST_ONLY
#define FIRST_ONLY 0 /* a release frees the key only on a first attempt (ADR 8) */
#else
#define FIRST_ONLY 1
#endif
#ifdef WITHOUT_SETTLE
#define SETTLE 0 /* a lost answer is settled by looking, not taken for a failure */
#else
#define SETTLE 1
#endif
#ifdef WITHOUT_DURABLE
#define DURABLE 0 /* the client is answered after the outcome is stored */
#else
#define DURABLE 1
#endif
#ifdef WITHOUT_STORED_ANSWER
#define STORED_ANSWER 0 /* who lost the record answers from it, not with its own outcome */
#else
#define STORED_ANSWER 1
#endif
#ifdef WITHOUT_SAME_OPERATION
#define SAME_OPERATION 0 /* ... if that is still the same operation: its fingerprint, its life */
#else
#define SAME_OPERATION 1
#endif
#ifdef WITHOUT_KEEPING
#define KEEPING 0 /* what is running is not deleted, however old */
#else
#define KEEPING 1
#endif
#ifdef WITHOUT_DOUBT_KEPT
#define DOUBT_KEPT 0 /* nor is what is unknown (ADR 6) */
#else
#define DOUBT_KEPT 1
#endif
#ifdef WITHOUT_COMPLETER
#define COMPLETER 0 /* somebody comes back to what was left */
#else
#define COMPLETER 1
#endif
#ifdef WITHOUT_CAS
#define CAS 0 /* the completer takes over exactly the attempt that it saw */
#else
#define CAS 1
#endif
#ifdef WITHOUT_ONLY_TAKES
#define ONLY_TAKES 0 /* the completer never inserts */
#else
#define ONLY_TAKES 1
#endif
#ifdef WITHOUT_ASKED_AGAIN
#define ASKED_AGAIN 0 /* a grant is not given back for a claim that was sent again */
#else
#define ASKED_AGAIN 1
#endif
#ifdef WITHOUT_SEEN_FENCE
#define SEEN_FENCE 0 /* a verdict is about the attempt that the operator looked at */
#else
#define SEEN_FENCE 1
#endif
#ifdef WITHOUT_LEAVE
#define LEAVE 0 /* who cannot ask what happened leaves it to one who can */
#else
#define LEAVE 1
#endif
#ifdef WITHOUT_TOLD
#define TOLD 0 /* a question without an answer says nothing, least of all that it did not happen */
#else
#define TOLD 1
#endif
#ifdef WITHOUT_HANDED_ON
#define HANDED_ON 0 /* a release says nothing of the one that was taken over: the record is left as it was found */
#else
#define HANDED_ON 1
#endif
#ifdef WITHOUT_POINT_KEPT
#define POINT_KEPT 0 /* a release forgets no recovery point: with one, also a first attempt stays */
#else
#define POINT_KEPT 1
#endif

/* Not ours to enforce: what callers, callees and operators owe. */
#ifdef WITHOUT_CALLEE_FENCE
#define CALLEE_FENCE 0 /* a callee that can be asked refuses older fences from then on */
#else
#define CALLEE_FENCE 1
#endif
#ifdef WITHOUT_CALLEE_FORGETS
#define CALLEE_FORGETS 0 /* a callee keeps the child key no longer than we keep the record */
#else
#define CALLEE_FORGETS 1
#endif
#ifdef WITHOUT_CONTRACT
#define CONTRACT 0 /* what arrives after the retention is another operation */
#else
#define CONTRACT 1
#endif
#ifdef WITHOUT_PATIENCE
#define PATIENCE 0 /* an operator first makes sure that nobody is at it any more */
#else
#define PATIENCE 1
#endif

/* ------------------------------------------------------------------ the record */

mtype = {
    ABSENT,    /* also released, and past its retention */
    RUNNING,
    SUCCEEDED, /* final; a final failure behaves the same */
    FAILED,    /* retryable */
    UNKNOWN
};

/* Recovery points. In INTENT an even one from CALLING on says "about to call", an odd one that this came to nothing. */
#define START   0
#define BOOKED  1
#define CALLING 2
#define is_intent(p) ((p) >= CALLING && (p) % 2 == 0)

mtype st = ABSENT;
byte fence;    /* of the newest grant */
byte taken_by; /* its nonce: which worker */
bool live;     /* its lease */
bool first;    /* attempt 1 */
bool probing;
bool doubt;    /* it took over one that may have called */
byte point;
byte answer; /* the outcome's bytes; each attempt would answer something else */
byte print;  /* the fingerprint */
byte seq;    /* the store's fences */

/* ------------------------------------------------------------------ who takes part */

#define WORKERS     (COPIES + 2)
#define STRANGER    COPIES       /* another request under the same key */
#define COMPLETES   (COPIES + 1) /* the completer */
#define NOBODY      WORKERS
#define print_of(w) ((w) == STRANGER -> 2 : 1)

bool gone[WORKERS];         /* ended, or dead */
bool holds[WORKERS];        /* was granted something, and is not gone: it may still be at it */
byte holders;               /* how many */
byte begun;                 /* copies that were delivered; they are all alike, so they begin in order */
byte give_back;             /* the fence of a grant whose claim's connection broke */
byte give_back_to = NOBODY; /* whose claim that was */
byte callee_fence;          /* the newest that the callee saw */
byte faults, renewals, verdicts;

#define a_fault     faults < FAULTS -> faults++
#define answer_lost a_fault; printf("its answer is lost\n")

/* ------------------------------------------------------------------ ghosts, and names of properties */

byte life;
byte granted;        /* the newest fence ever */
byte booked[LIVES];  /* local effects */
byte charged[LIVES]; /* foreign effects */
byte stored[LIVES];  /* the final answer, from when it was stored on */
bool sent;           /* in this life a call was begun */
bool excuse;         /* in this life a holder died, or its lease ended under it */
bool told;           /* in this life a client got the final answer */

/* Always 0: names for assertions. */
bit K1_one_holder, K2_fence_grows, K3_newest_only, K4_durable_first, K5_final_is_final, K6_mismatch_first;
bit K7_nothing_vanishes, K8_expiry_is_final, K10_unknown_is_true, K11_forward_only, exactly_once;

/* ------------------------------------------------------------------ what the store does */

/* The arms; PROBE is called ASK here, UNKNOWN is IS_UNKNOWN. */
mtype = { EXECUTE, ASK, REPLAY, MISMATCH, IN_PROGRESS, IS_UNKNOWN, DONE, FENCED };

/* Of the worker that runs this: me, want (its fingerprint), arm, mine (the fence of its grant), my_life, at (its
 * recovery point), did (what its own attempt's row shows), heard (a stored answer that it was sent). */

inline grant_it()
{
    assert(K1_one_holder || !(st == RUNNING && live));
    fence = (SEQUENCE -> seq : fence) + 1;
    seq = seq + 1;
    assert(K2_fence_grows || fence > granted);
    granted = fence;
    st = RUNNING;
    live = true;
    taken_by = me;
    probing = false;
    doubt = false;
    mine = fence;
    my_life = life;
    at = point;
    did = 0;
    if
    :: holds[me]
    :: else -> holds[me] = true; holders++
    fi
}

/* What nobody looks at any more is forgotten: fewer states. */
inline no_holder()
{
    live = false;
    taken_by = 0;
    probing = false;
    doubt = false
}

inline no_record()
{
    no_holder();
    st = ABSENT;
    first = false;
    point = START;
    print = 0;
    answer = 0;
    fence = (SEQUENCE -> fence : 0)
}

/* The next attempt of the record. */
inline take()
{
    if
    :: !CARRY -> point = START
    :: else
    fi;
    first = false;
    grant_it()
}

inline store_unknown()
{
    /* Nobody is told "unknown" for nothing. */
    assert(K10_unknown_is_true || sent || excuse);
    assert(K10_unknown_is_true || POLICY != INTENT || !INTEND || is_intent(point));
    st = UNKNOWN;
    no_holder()
}

/* Arm 7: the holder's lease is over. */
inline take_abandoned()
{
    if
    :: ESCALATION && (POLICY == ESCALATE || (POLICY == MARK && point != START)) ->
        store_unknown();
        arm = IS_UNKNOWN
    :: CAN_ASK -> take(); probing = true; doubt = HANDED_ON; arm = ASK
    :: POLICY == MARK && point == START -> take(); arm = EXECUTE
    :: else -> take(); doubt = HANDED_ON; arm = EXECUTE
    fi
}

inline decide()
{
    if
    :: st == ABSENT ->
        first = true;
        point = START;
        print = want;
        grant_it();
        arm = EXECUTE
    :: else ->
        if
        :: FINGERPRINT && print != want -> arm = MISMATCH
        :: else ->
            assert(K6_mismatch_first || print == want);
            assert(K5_final_is_final || !told || st == SUCCEEDED);
            if
            :: st == SUCCEEDED -> heard = answer; my_life = life; arm = REPLAY
            :: st == FAILED -> take(); arm = EXECUTE
            :: st == UNKNOWN -> arm = IS_UNKNOWN
            :: st == RUNNING && NONCE && taken_by == me -> /* the same call again: the same grant */
                live = true;
                mine = fence;
                my_life = life;
                at = point;
                arm = (probing -> ASK : EXECUTE)
            :: st == RUNNING && !(NONCE && taken_by == me) && live && LEASE -> arm = IN_PROGRESS
            :: st == RUNNING && !(NONCE && taken_by == me) && !(live && LEASE) ->
                if
                :: POLICY == LEFT && LEAVE -> arm = IN_PROGRESS
                :: POLICY == LEFT && !LEAVE -> take(); arm = EXECUTE
                :: else -> take_abandoned()
                fi
            fi
        fi
    fi
}

inline claim_record()
{
    d_step {
        if
        :: ASKED_AGAIN && give_back_to == me -> give_back = 0; give_back_to = NOBODY
        :: else
        fi;
        decide();
        printf("%d claims: %e, fence %d\n", me, arm, fence)
    }
}

/* The completer: takes over, by compare-and-set, what it saw; or finds that it already has. */
inline take_over()
{
    d_step {
        if
        :: st == RUNNING && taken_by == me && fence > seen -> arm = (probing -> ASK : EXECUTE)
        :: st == RUNNING && taken_by != me && !live && (fence == seen || !CAS) ->
            assert(K6_mismatch_first || (my_life == life && print == want)); /* it re-sends the request that it saw */
            take_abandoned()
        :: st == FAILED && (fence == seen || !CAS) ->
            assert(K6_mismatch_first || (my_life == life && print == want));
            take();
            arm = EXECUTE
        :: st == ABSENT && !ONLY_TAKES ->
            assert(K8_expiry_is_final || my_life == life); /* only clients begin a new life */
            decide()
        :: else -> arm = FENCED
        fi;
        printf("%d, the completer, takes over what had fence %d: %e, fence %d\n", me, seen, arm, fence)
    }
}

#define is_mine ((fence == mine || !FENCE) && (st == RUNNING || (!FINAL && st != ABSENT)))

/* What every change by a holder has to be. */
inline newest_only()
{
    assert(K3_newest_only || mine == granted);
    assert(K5_final_is_final || st == RUNNING)
}

/* What is there, for somebody who does not hold it any more. */
inline read_stored()
{
    arm = FENCED;
    heard = 0;
    if
    :: st == SUCCEEDED && (!SAME_OPERATION || (print == want && life == my_life)) ->
        printf("%d (fingerprint %d, life %d) is sent outcome %d of fingerprint %d, life %d\n", me, want, my_life,
               answer, print, life);
        assert(K6_mismatch_first || print == want);
        assert(K5_final_is_final || life == my_life);
        heard = answer
    :: else
    fi
}

inline extend()
{
    d_step {
        if
        :: is_mine -> newest_only(); live = true; arm = DONE
        :: else -> read_stored()
        fi;
        printf("%d extends: %e\n", me, arm)
    }
}

/* Goes on to a point; `effects` local effects are in the same transaction. */
inline advance(to, effects)
{
    d_step {
        if
        :: SETTLE && did >= to -> arm = DONE /* this very call, its answer lost */
        :: !(SETTLE && did >= to) && is_mine ->
            newest_only();
            assert(K11_forward_only || to >= point);
            point = to;
            did = to;
            live = true;
            booked[my_life] = booked[my_life] + effects;
            assert(exactly_once || booked[my_life] <= 1);
            arm = DONE
        :: else -> read_stored()
        fi;
        printf("%d advances to %d, local effects %d: %e\n", me, to, effects, arm)
    }
}

#define DID_END 100

inline finish(outcome)
{
    d_step {
        if
        :: did == DID_END -> arm = DONE
        :: did != DID_END && is_mine ->
            newest_only();
            if
            :: outcome == UNKNOWN -> store_unknown()
            :: outcome == SUCCEEDED ->
                /* It was done, all of it, and in this life. */
                assert(exactly_once || (booked[life] == 1 && charged[life] == 1));
                assert(K5_final_is_final || stored[life] == 0);
                stored[life] = mine;
                answer = mine;
                point = START;
                first = false;
                st = SUCCEEDED
            :: else -> st = outcome
            fi;
            no_holder();
            did = DID_END;
            arm = DONE
        :: else -> read_stored()
        fi;
        printf("%d finishes with %e under fence %d: %e\n", me, outcome, mine, arm)
    }
}

/* It did nothing. What others did, or it did before, stays. */
inline leave()
{
    if
    :: doubt -> live = false
    :: !doubt && ((first && (point == START || !POINT_KEPT)) || !FIRST_ONLY) -> no_record()
    :: else -> no_holder(); st = FAILED
    fi
}

inline release()
{
    d_step {
        if
        :: did != DID_END && is_mine ->
            newest_only();
            did = DID_END;
            leave();
            if
            :: st == RUNNING -> taken_by = NOBODY /* whoever released does not come back with that nonce */
            :: else
            fi
        :: else
        fi;
        printf("%d releases fence %d: the record is %e\n", me, mine, st)
    }
}

/* ------------------------------------------------------------------ a worker */

/* A client gets an outcome; 0 is "in progress", "try again": that promises nothing. */
inline tell(value)
{
    d_step {
        if
        :: value != 0 ->
            printf("a client of %d is told outcome %d\n", me, value);
            assert(K4_durable_first || stored[my_life] != 0);
            assert(K5_final_is_final || stored[my_life] == value);
            told = told || my_life == life
        :: else
        fi
    }
}

mtype = {
    ANSWERED,
    REFUSED, /* for certain nothing was done: connection refused, 429 */
    BROKEN   /* nobody knows: 5xx, timeout, half an answer */
};

/* The callee gets a request. */
inline call()
{
    d_step {
        if
        :: CAN_ASK && CALLEE_FENCE && mine < callee_fence -> got = REFUSED
        :: else ->
            sent = sent || my_life == life;
            got = ANSWERED;
            if
            :: CAN_ASK -> callee_fence = mine
            :: else
            fi;
            if
            :: POLICY == RERUN && CHILD_KEY && charged[my_life] > 0
            :: POLICY == RERUN && !CALLEE_FORGETS && my_life > 0 && charged[0] > 0
            :: else ->
                charged[my_life] = charged[my_life] + 1;
                printf("the callee does what %d asks for, in life %d\n", me, my_life);
                assert(exactly_once || charged[my_life] <= 1)
            fi
        fi
    }
}

/* Dies here, or does not. The completer stands for one who comes back: it lives. */
inline may_die()
{
    if
    :: holds[me] && me != COMPLETES && faults < FAULTS ->
        faults++;
        printf("%d dies\n", me);
        excuse = excuse || (st == RUNNING && taken_by == me);
        goto over
    :: true
    fi
}

/* It holds the record: it goes to work, or finds that it cannot even begin. */
inline begin_work()
{
    if
    :: faults < FAULTS -> faults++; printf("%d cannot begin\n", me); goto give_it_back
    :: arm == EXECUTE -> goto book
    :: arm == ASK -> goto probe
    fi
}

/* It does not hold it any more, and answers its client. */
inline be_fenced()
{
    if
    :: STORED_ANSWER || got != ANSWERED -> tell(heard)
    :: else -> tell(mine)
    fi;
    goto over
}

/*
 * One copy of the request, served; or the completer. Each atomic block is a step of the store, or of the callee, with
 * what follows from its answer. Between two of them anything may happen, and in each the worker may be dead. A fault
 * after a step of the store is a lost answer: the same step is taken again, from the label above it.
 */
proctype Worker(byte me)
{
    mtype arm, got;
    byte want, mine, my_life, at, did, heard, seen;

    atomic {
        want = print_of(me);
        if
        :: me < COPIES -> begun == me; begun++
        :: me == STRANGER && STRANGERS > 0
        :: me == STRANGER && STRANGERS == 0 -> goto over
        :: me == COMPLETES -> goto end_look
        fi
    }

ask:
    if
    :: UNIQUE
    :: !UNIQUE -> /* it looks, and writes later */
        if
        :: st == ABSENT -> seen = 1
        :: else -> seen = 0
        fi
    fi;
    atomic {
        may_die();
        if
        :: !UNIQUE && seen == 1 -> no_record()
        :: else
        fi;
        claim_record();
        if
        :: answer_lost; /* perhaps with the connection */
            if
            :: arm == EXECUTE && give_back == 0 -> give_back = mine; give_back_to = me
            :: true
            fi;
            goto ask
        :: arm == EXECUTE || arm == ASK -> begin_work()
        :: arm == REPLAY -> tell(heard); goto over
        :: arm == MISMATCH || arm == IS_UNKNOWN -> goto over
        :: arm == IN_PROGRESS -> goto over /* and says so */
        :: arm == IN_PROGRESS -> goto wait
        fi
    }

wait: /* and ask again, with the same nonce */
    !(st == RUNNING && (live || (POLICY == LEFT && LEAVE))) -> goto ask;

end_look: /* the completer: is anything left behind? */
    if
    :: d_step { COMPLETER && ((st == RUNNING && !live) || st == FAILED) ->
        seen = fence; my_life = life; want = print; printf("the completer sees fence %d\n", seen) }
    :: d_step { COMPLETER && !ONLY_TAKES && st == SUCCEEDED ->
        seen = fence; my_life = life; want = print; printf("the completer sees fence %d\n", seen) }
    fi;
take_it:
    if
    :: true
    fi;
    atomic {
        take_over();
        if
        :: answer_lost; goto take_it
        :: arm == EXECUTE || arm == ASK -> begin_work()
        :: arm == IS_UNKNOWN || arm == FENCED -> goto over
        fi
    }

probe: /* what happened? */
    if
    :: true
    fi;
    atomic {
        may_die();
        if
        :: mine >= callee_fence || !CALLEE_FENCE ->
            callee_fence = mine;
            got = (charged[my_life] > 0 -> ANSWERED : 0)
        :: mine < callee_fence && CALLEE_FENCE -> got = BROKEN
        :: a_fault; got = (TOLD -> BROKEN : 0)
        fi;
        printf("%d asks what happened: %e\n", me, got);
        if
        :: got == ANSWERED && at >= BOOKED -> goto done
        :: got == BROKEN -> goto in_doubt
        :: got == BROKEN -> goto give_it_back
        :: else -> got = 0
        fi
    }

book: /* the first phase: a local effect */
    if
    :: at < BOOKED ->
        if
        :: TRANSACTION
        :: !TRANSACTION ->
            d_step { booked[my_life] = booked[my_life] + 1; assert(exactly_once || booked[my_life] <= 1) }
        fi;
        atomic {
            may_die();
            advance(BOOKED, TRANSACTION);
            if
            :: answer_lost; goto book
            :: arm == DONE -> at = BOOKED
            :: arm == FENCED -> be_fenced()
            fi
        }
    :: else
    fi;

intend: /* the next phase is a foreign call: say so first */
    if
    :: POLICY == INTENT && INTEND && !is_intent(at) ->
        atomic {
            may_die();
            advance(at + 1, 0);
            if
            :: answer_lost; goto intend
            :: arm == DONE -> at++
            :: arm == FENCED -> be_fenced()
            fi
        }
    :: POLICY == INTENT && is_intent(at) && HEED -> goto in_doubt
    :: else
    fi;

    if
    :: RENEWALS == 0
    :: RENEWALS > 0 ->
        atomic {
            may_die();
            if
            :: renewals < RENEWALS -> renewals++; extend()
            :: true -> arm = DONE
            fi;
            if
            :: arm == DONE
            :: arm == FENCED -> be_fenced() /* once_attempt_is_held() */
            fi
        }
    fi;

    atomic {
        may_die();
        if
        :: call();
            if
            :: got == ANSWERED && faults < FAULTS -> faults++; got = BROKEN
            :: true
            fi
        :: a_fault; got = REFUSED
        :: a_fault; got = BROKEN; sent = sent || my_life == life /* and the callee did nothing */
        fi;
        printf("%d calls: %e\n", me, got);
        if
        :: got == ANSWERED -> goto done
        :: got == BROKEN && POLICY != LEFT && (POLICY == RERUN || !DOUBT) -> goto failed
        :: got == BROKEN && POLICY == LEFT -> goto leave_it
        :: got == BROKEN && POLICY != LEFT && !(POLICY == RERUN || !DOUBT) -> goto in_doubt
        :: got == REFUSED
        fi
    }

withdraw:
    if
    :: POLICY == INTENT && INTEND && WITHDRAWAL && is_intent(at) ->
        atomic {
            may_die();
            advance(at + 1, 0);
            if
            :: answer_lost; goto withdraw
            :: arm == DONE -> at++
            :: arm == FENCED -> be_fenced()
            fi
        }
    :: else
    fi;

    if
    :: got == REFUSED -> goto give_it_back /* this attempt called nobody: it may say so, or that it failed */
    :: true
    fi;

failed:
    if
    :: true
    fi;
    atomic {
        may_die();
        finish(FAILED);
        if
        :: answer_lost; goto failed
        :: goto over
        fi
    }

in_doubt:
    if
    :: true
    fi;
    atomic {
        may_die();
        finish(UNKNOWN);
        if
        :: answer_lost; goto in_doubt
        :: goto over
        fi
    }

leave_it: /* nobody knows, and it can be asked: its lease is let go */
    if
    :: true
    fi;
    atomic {
        may_die();
        if
        :: is_mine -> live = false; printf("%d leaves it\n", me)
        :: else
        fi;
        goto over
    }

give_it_back:
    if
    :: true
    fi;
    atomic {
        may_die();
        release();
        if
        :: answer_lost; goto give_it_back
        :: goto over
        fi
    }

done:
    if
    :: DURABLE
    :: !DURABLE -> tell(mine)
    fi;
    atomic {
        may_die();
        finish(SUCCEEDED);
        if
        :: answer_lost; goto done
        :: arm == DONE -> tell(mine); goto over
        :: arm == FENCED -> be_fenced()
        fi
    }

over:
    atomic {
        holders = holders - holds[me];
        holds[me] = false;
        arm = 0; mine = 0; my_life = 0; at = 0; did = 0; heard = 0; got = 0; seen = 0; want = 0;
        if
        :: me == COMPLETES -> goto end_look
        :: else -> gone[me] = true
        fi
    }
}

/* ------------------------------------------------------------------ the rest of the world */

proctype World()
{
end:
    do
    /* A lease ends: of one who is gone, surely; of one who lives, it may. */
    :: d_step { st == RUNNING && live && gone[taken_by] ->
        live = false; printf("the lease of fence %d is over\n", fence) }
    :: d_step { st == RUNNING && live && !gone[taken_by] && faults < FAULTS ->
        faults++; live = false; excuse = true; printf("the lease of fence %d is over, its holder lives\n", fence) }

    /* K8: the retention of an outcome is over. Whether it was deleted does not matter. */
    :: d_step { (st == SUCCEEDED || st == FAILED) && life < LIVES - 1 ->
        no_record();
        life = life + CONTRACT;
        sent = false;
        excuse = false;
        told = false;
        printf("the retention is over\n") }
    :: d_step { !KEEPING && st == RUNNING && !live -> no_record(); printf("a running record is deleted\n") }
    :: d_step { !DOUBT_KEPT && st == UNKNOWN -> no_record(); printf("an unknown record is deleted\n") }

    /* The daemon gives back what nobody heard of. */
    :: d_step { give_back != 0 ->
        if
        :: fence == give_back && st == RUNNING -> leave()
        :: else
        fi;
        printf("the daemon gives fence %d back: the record is %e\n", give_back, st);
        give_back = 0;
        give_back_to = NOBODY }
    od
}

#define may_be_resolved (st == UNKNOWN || (st == RUNNING && !live))
#define is_looked_at    (verdicts < VERDICTS && may_be_resolved && (holders == 0 || !PATIENCE))

/* An operator looks, finds out what happened, and says so: done (all of it), not done, nothing of it (release). */
proctype Operator()
{
    byte seen;
    mtype verdict;
end:
    do
    :: if
       :: d_step { is_looked_at && booked[life] > 0 && charged[life] > 0 ->
            verdicts++; seen = fence; verdict = SUCCEEDED; printf("an operator looks at fence %d: %e\n", seen, verdict) }
       :: d_step { is_looked_at && !(booked[life] > 0 && charged[life] > 0) ->
            verdicts++; seen = fence; verdict = FAILED; printf("an operator looks at fence %d: %e\n", seen, verdict) }
       :: d_step { is_looked_at && booked[life] == 0 && charged[life] == 0 ->
            verdicts++; seen = fence; verdict = ABSENT; printf("an operator looks at fence %d: %e\n", seen, verdict) }
       fi;
       d_step {
            if
            :: may_be_resolved && (fence == seen || !SEEN_FENCE) ->
                fence = (SEQUENCE -> seq : fence) + 1; /* a verdict is a grant of its own */
                seq++;
                granted = fence;
                no_holder();
                if
                :: verdict == SUCCEEDED ->
                    assert(K5_final_is_final || stored[life] == 0);
                    stored[life] = fence;
                    answer = fence;
                    point = START;
                    first = false
                :: verdict == ABSENT -> no_record()
                :: else
                fi;
                st = verdict
            :: else
            fi;
            printf("the operator has spoken: the record is %e\n", st);
            seen = 0;
            verdict = 0
       }
    od
}

/* Nothing can happen any more: there is an outcome, or doubt, or nothing was begun. */
proctype The_end()
{
end:
    timeout -> assert(K7_nothing_vanishes || (st != RUNNING && st != FAILED))
}

init
{
    byte w;
    atomic {
        for (w : 0 .. WORKERS - 1) {
            run Worker(w)
        }
        run World();
        run Operator();
        run The_end()
    }
}
