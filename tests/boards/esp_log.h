typedef enum { ESP_LOG_NONE } esp_log_level_t;
void esp_log_level_set(const char *tag, esp_log_level_t level);
