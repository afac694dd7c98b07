/* when.c - see when.h. */
#include "reconcile/when.h"

#include "core/span.h"

static const int64_t MS_OF_DAY = 86400000;

/* Exactly `digits` digits at the front. */
static bool take_number(once_span *text, size_t digits, int *value)
{
    if (text->len < digits)
        return false;
    *value = 0;
    for (size_t i = 0; i < digits; i++) {
        uint8_t c = text->ptr[i];
        if (c < '0' || c > '9')
            return false;
        *value = *value * 10 + (c - '0');
    }
    *text = once_span_skip(*text, digits);
    return true;
}

static bool take_byte(once_span *text, uint8_t byte)
{
    if (text->len == 0 || text->ptr[0] != byte)
        return false;
    *text = once_span_skip(*text, 1);
    return true;
}

/* ".123456" in milliseconds, further digits are cut off. No fraction is 0. */
static bool take_fraction(once_span *text, int *ms)
{
    *ms = 0;
    if (!take_byte(text, '.'))
        return true;
    int digits = 0;
    for (int digit; take_number(text, 1, &digit); digits++)
        if (digits < 3)
            *ms = *ms * 10 + digit;
    for (int i = digits; i < 3; i++)
        *ms *= 10;
    return digits > 0;
}

static bool is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Days from 1970-01-01; false if the date does not exist. */
static bool days_of(int year, int month, int day, int64_t *days)
{
    static const int before[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365 };
    if (year < 1970 || month < 1 || month > 12 || day < 1)
        return false;
    int in_month = before[month] - before[month - 1] + (month == 2 && is_leap(year) ? 1 : 0);
    if (day > in_month)
        return false;
    int past = year - 1;
    int64_t leaps = past / 4 - past / 100 + past / 400 - (1969 / 4 - 1969 / 100 + 1969 / 400);
    *days = (int64_t)(year - 1970) * 365 + leaps + before[month - 1] + (month > 2 && is_leap(year) ? 1 : 0) + day - 1;
    return true;
}

/* "Z", "+02:00", "-0700"; the offset in minutes. */
static bool take_zone(once_span *text, int *minutes)
{
    *minutes = 0;
    if (take_byte(text, 'Z') || take_byte(text, 'z'))
        return true;
    bool west = text->len > 0 && text->ptr[0] == '-';
    int hour, minute;
    if (!take_byte(text, '+') && !take_byte(text, '-'))
        return false;
    if (!take_number(text, 2, &hour))
        return false;
    take_byte(text, ':');
    if (!take_number(text, 2, &minute) || hour > 23 || minute > 59)
        return false;
    *minutes = (west ? -1 : 1) * (hour * 60 + minute);
    return true;
}

static bool parse_seconds(once_span text, once_time *time)
{
    int64_t seconds = 0;
    int digits = 0, ms;
    for (int digit; digits < 12 && take_number(&text, 1, &digit); digits++)
        seconds = seconds * 10 + digit;
    if (digits == 0 || !take_fraction(&text, &ms) || text.len > 0)
        return false;
    *time = seconds * 1000 + ms;
    return true;
}

bool once_when_parse(once_span text, once_time *time)
{
    if (take_byte(&text, '@'))
        return parse_seconds(text, time);
    int year, month, day, hour, minute, second, ms, zone;
    int64_t days;
    if (!take_number(&text, 4, &year) || !take_byte(&text, '-') || !take_number(&text, 2, &month) ||
        !take_byte(&text, '-') || !take_number(&text, 2, &day) || !days_of(year, month, day, &days))
        return false;
    *time = days * MS_OF_DAY;
    if (text.len == 0)
        return true;
    if (!take_byte(&text, 'T') && !take_byte(&text, 't') && !take_byte(&text, ' '))
        return false;
    if (!take_number(&text, 2, &hour) || !take_byte(&text, ':') || !take_number(&text, 2, &minute) ||
        !take_byte(&text, ':') || !take_number(&text, 2, &second) || !take_fraction(&text, &ms))
        return false;
    take_byte(&text, ' ');
    if (!take_zone(&text, &zone) || text.len > 0 || hour > 23 || minute > 59 || second > 60)
        return false;
    *time += ((int64_t)(hour * 60 + minute - zone) * 60 + second) * 1000 + ms;
    return *time >= 0;
}
