/* otlp_setup.c - see otlp_setup.h. */
#include "program/otlp_setup.h"

#include "http/http_call.h"

#include <stdlib.h>

void otlp_setup_init(struct otlp_setup *setup, const struct once_cli *cli, const char *service)
{
    *setup = (struct otlp_setup){ .cli = cli, .options = { .service = service }, .tracer = { .ratio = 1 } };
}

static bool parse_ratio(struct otlp_setup *setup)
{
    char *end = NULL;
    double ratio = strtod(optarg, &end);
    bool plain = (optarg[0] >= '0' && optarg[0] <= '9') || optarg[0] == '.';
    if (!plain || *end != '\0' || !(ratio >= 0 && ratio <= 1)) {
        once_cli_usage(setup->cli, "--otlp-ratio: '%.60s' is not a number from 0 to 1", optarg);
        return false;
    }
    setup->tracer.ratio = ratio;
    setup->ratio_given = true;
    return true;
}

bool otlp_setup_option(struct otlp_setup *setup, enum otlp_option option)
{
    struct exporter_options *o = &setup->options;
    struct once_error err;
    switch (option) {
    case OTLP_OPTION_URL:
        if (http_url_check(optarg, &err) != ONCE_OK) {
            once_cli_usage(setup->cli, "--otlp: %s", err.text);
            return false;
        }
        o->url = optarg;
        return true;
    case OTLP_OPTION_HEADER:
        if (o->header_count == EXPORTER_HEADERS_MAX) {
            once_cli_usage(setup->cli, "--otlp-header may be given at most %d times", EXPORTER_HEADERS_MAX);
            return false;
        }
        o->headers[o->header_count++] = optarg;
        return true;
    case OTLP_OPTION_RATIO:
        return parse_ratio(setup);
    case OTLP_OPTION_COUNT:
        break;
    }
    return false;
}

bool otlp_setup_check(const struct otlp_setup *setup)
{
    if (setup->options.url != NULL || (setup->options.header_count == 0 && !setup->ratio_given))
        return true;
    once_cli_usage(setup->cli, "--otlp-header and --otlp-ratio need --otlp");
    return false;
}

int otlp_setup_start(struct otlp_setup *setup)
{
    struct once_error err;
    if (setup->options.url == NULL)
        return ONCE_EXIT_OK;
    once_result r = http_call_init(&err);
    if (r == ONCE_OK)
        r = exporter_start(&setup->options, &setup->tracer.exporter, &err);
    if (r == ONCE_INVALID)
        return once_cli_usage(setup->cli, "--otlp: %s", err.text);
    return r == ONCE_OK ? ONCE_EXIT_OK : once_cli_error(setup->cli, &err, "export spans");
}

void otlp_setup_stop(struct otlp_setup *setup)
{
    exporter_stop(setup->tracer.exporter);
    setup->tracer.exporter = NULL;
}
